mod fabric;
