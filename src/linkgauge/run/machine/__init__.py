"""What both ends know of the machine: processes, private folders, cores, interfaces, counters of devices."""
