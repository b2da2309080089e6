"""The server's side: reports added up as they come, who is drawn, the strategy on Flower, the history of a run."""
