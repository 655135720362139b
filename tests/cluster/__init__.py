"""An emulated cluster on this machine: nodes as namespaces, switches as bridges, links as shaped veth (cluster.py)."""
