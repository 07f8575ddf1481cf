mod fixture;
mod read;
mod send;
