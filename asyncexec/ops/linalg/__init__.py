"""Linear algebra, Fourier transforms, einsum."""
