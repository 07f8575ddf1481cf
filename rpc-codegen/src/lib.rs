//! Build-time generation of messages and service traits from `.proto` files.
