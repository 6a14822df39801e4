"""A daemon's folder and parts for tests, and doubles of what is around it: GitHub, systemd, GPUs, disks, clocks."""
