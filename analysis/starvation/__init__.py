"""Which threads starved, and behind which others?"""
