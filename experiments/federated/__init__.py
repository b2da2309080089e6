"""Papers 003 (LDP-FL) and 004, chapter 6 (LDPVec), and what local privacy costs at its best."""
