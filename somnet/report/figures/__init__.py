"""Pictures of a data set, of a memory, of its bags and of predictions. Pure: images and arrays in, an image out."""
