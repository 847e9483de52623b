"""An elastic executor's own process: its way in, its workers, its way out."""
