"""The server's side: reports added up as they come, the strategy on Flower, the history of a run."""
