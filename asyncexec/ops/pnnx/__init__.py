"""The op domain ``Pnnx>``: torch's operators as PNNX names them, on arrays with channels before height and width."""
