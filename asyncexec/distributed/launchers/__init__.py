"""What starts the workers of clusters: processes of this machine, Ray, dask.distributed."""
