//! Whole-format tests.
