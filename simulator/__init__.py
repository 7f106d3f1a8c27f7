"""The simulator: workloads, replays of recordings, and what would be different.

Its rooms, each of which uses only those before it:

policies    scheduling policies: built in, in Python, or compiled for sched_ext
workloads   threads, their programs and the machine: written by hand, generated or read
recorded    what a recording shows of its workload
runs        a workload under a policy; a recording replayed
closeness   how close a replay is to recordings of the same workload
changes     what if one setting were different
"""
