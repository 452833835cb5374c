"""What tests of components need: a scripted engine, small worlds, real tokenizers."""
