"""Systems: devices, hosts, switches and links as a graph, discovered or described."""
