"""Commands that plan a collection, make reports and read them."""
