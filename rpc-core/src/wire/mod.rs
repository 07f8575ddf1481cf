//! Under construction in this commit's successors.
