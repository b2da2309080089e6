"""Long vectors in few numbers: a public random projection, and a public list of directions."""
