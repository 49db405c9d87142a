//go:build !linux

package main

import "fmt"

func main() { fmt.Println("bench runs only on Linux: it reads /proc and sets the size of pipes") }
