//! Who is who: tids become utids.
