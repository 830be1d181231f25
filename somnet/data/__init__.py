"""From files on disk to bags of images with boxes."""
