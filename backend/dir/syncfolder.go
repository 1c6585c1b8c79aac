package dir

import (
	"fmt"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/mount"
)

// refuseSynced refuses a path whose files some program copies between machines.
func refuseSynced(fsy fsys.FS, path string) error {
	service, where := mount.SyncedBy(fsy, path)
	if service == "" {
		return nil
	}
	return fmt.Errorf("%w store %s: %s copies the files there between machines (%s), too late for a lease: "+
		"two machines would hold it at once; choose a directory that nothing copies",
		fence.ErrInvalid, path, service, where)
}
