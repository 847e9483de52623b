"""What the machines of a cluster and the links between them can do, measured. `figures` is pure;
the others send, receive and compute."""
