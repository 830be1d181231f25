"""The embedded toy web: drawn pictures with known truth, which have the faults of images found on the web.

An object is a short function that paints on a brush; sprites of objects are laid over a scene to make a picture, and
the writer makes a data set of pictures.
"""
