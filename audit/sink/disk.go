package sink

import (
	"errors"
	"os"
)

// onDisk has a file written through to the disk; of a folder, the names in it.
func onDisk(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
