"""What is wrong, the worst first?"""
