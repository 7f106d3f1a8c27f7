"""Which threads moved between CPUs, why, and did it help?"""
