"""What is wrong, worst first?"""
