package socket

// WriteRaw writes bytes to a control socket.
func WriteRaw(c *Control, b []byte) { c.conn.Write(b) }
