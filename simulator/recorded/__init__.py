"""What a recording shows of its workload: programs, groups, masks, histories, settings."""
