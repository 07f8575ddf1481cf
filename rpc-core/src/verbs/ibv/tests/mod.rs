mod child;
mod counting;
mod fabric;
mod fork;
mod open;
