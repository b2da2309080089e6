"""From what a person answers to what a mechanism takes: tables, codes, items and sections."""
