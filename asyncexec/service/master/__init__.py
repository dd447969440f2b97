"""TensorFlow's own protocol, for ``tf.compat.v1.Session``."""
