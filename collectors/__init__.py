"""What runs on the traced host: POSIX sh, D and bpftrace; this module only locates the files."""
