"""Stepwise profiling (Liu 2017): how many processors each operator of an application needs on a
platform, found by measuring. Methods are generators: they propose trials, are told what was
measured, and say what they make of it. Whoever drives them runs the trials."""
