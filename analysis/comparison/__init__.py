"""What differs between runs, beyond the noise?"""
