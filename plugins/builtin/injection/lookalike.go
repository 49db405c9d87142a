package injection

// LookAlike reports whether two different names cannot be told apart by eye: by UTS 39, regardless
// of case, and with capitals and digits that resemble other letters.
func LookAlike(a, b string) bool {
	x, y := skeletons(a), skeletons(b)
	return a != b && (x[0] == y[0] || x[1] == y[1])
}
