"""Backbones as feature maps, and pooling of boxes on them."""
