//! What the scheduler did, inferred from the facts in one pass.
