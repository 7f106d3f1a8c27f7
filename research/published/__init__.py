"""Published and measured experiments that the policy models are compared with."""
