//go:build !linux

package main

import "fmt"

func main() { fmt.Println("bench reads /proc and sizes pipes as Linux does; it runs nowhere else") }
