package postgres

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clerk"
)

//go:embed migrations/*.sql queries/*.sql
var files embed.FS

// DefaultSchema is the schema that holds Croft's tables and functions by
// default.
const DefaultSchema = "croft"

var (
	schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)
	croftWord  = regexp.MustCompile(`\bcroft\b`)
)

// checkSchema allows only names that need no quotes, because they become part
// of statements.
func checkSchema(name string) error {
	if schemaName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%w schema %q: it must be a plain lower-case name of letters, digits and _, at most 48 long", fence.ErrInvalid, name)
}

// statements are the texts that are sent to the server, for one schema.
type statements struct {
	schema                                         string
	apply, acquire, release, get, list, now, sweep string
	wait, leave, listen, probe                     string
	version, prepare, making, migrated             string
	limit, unlimit, rekey, rekeyed, holder, there  string
	lock, trusted                                  string
	examine, clock, count, idle                    string

	// Of the ledger.
	workApply, workClaim, workGet, workEffects, workRefusals, workStats, workPrune, workPrunable string
	workList, workListFew                                                                        clerk.Directed
	workItems, workUniques, workInsert, workUpdate, workEmit, workRefuse                         string
	workMarkEnter, workMarks, workMark, workEffectsByID, workEffectUpdate, workTake              string
	workWake, workNotify, workListen, workArm, workThere, workBlocked, workEffectsOrphaned       string
}

func newStatements(schema string) *statements {
	q := func(name string) string { return sqlText("queries/"+name+".sql", schema) }
	return &statements{
		schema: schema,
		apply:  q("apply"), acquire: q("acquire"), release: q("release"), get: q("get"), list: q("list"), now: q("now"), sweep: q("sweep"),
		wait: q("wait"), leave: q("leave"), listen: q("listen"), probe: q("probe"),
		version: q("version"), prepare: q("prepare"), making: q("making"), migrated: q("migrated"),
		limit: q("limit"), unlimit: q("unlimit"), rekey: q("rekey"), rekeyed: q("rekeyed"), holder: q("holder"), there: q("there"),
		lock: q("lock"), trusted: q("trusted"),
		examine: q("examine"), clock: q("clock"), count: q("count"), idle: q("idle"),

		workApply: q("work_apply"), workClaim: q("work_claim"), workGet: q("work_get"), workList: clerk.Direct(q("work_list")), workListFew: clerk.Direct(q("work_list_few")),
		workEffects: q("work_effects"), workRefusals: q("work_refusals"), workStats: q("work_stats"), workPrune: q("work_prune"), workPrunable: q("work_prunable"),
		workItems: q("work_items"), workUniques: q("work_uniques"), workInsert: q("work_insert"), workUpdate: q("work_update"), workEmit: q("work_emit"), workRefuse: q("work_refuse"),
		workMarkEnter: q("work_mark_enter"), workMarks: q("work_marks"), workMark: q("work_mark"),
		workEffectsByID: q("work_effects_by_id"), workEffectUpdate: q("work_effect_update"), workTake: q("work_take"),
		workWake: q("work_wake"), workNotify: q("work_notify"), workListen: q("work_listen"), workArm: q("work_arm"), workThere: q("work_there"), workBlocked: q("work_blocked"),
		workEffectsOrphaned: q("work_effects_orphaned"),
	}
}

// sqlText returns an embedded file with the schema's name in place of the
// default one.
func sqlText(name, schema string) string {
	pieces, ok := sqlPieces()[name]
	if !ok {
		panic("no " + name + " is embedded")
	}
	return strings.Join(pieces, schema)
}

// sqlPieces are the embedded files, split where the schema's name goes. That is
// done once, not for every store.
var sqlPieces = sync.OnceValue(func() map[string][]string {
	pieces := map[string][]string{}
	for _, pattern := range []string{"migrations/*.sql", "queries/*.sql"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			panic(err)
		}
		for _, name := range names {
			pieces[name] = croftWord.Split(rawText(name), -1)
		}
	}
	return pieces
})

func rawText(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.TrimSpace(string(text))
}

// migration is one step from one version of the schema to the next.
type migration struct {
	version    int
	name, text string
}

// migrations returns all steps, in order. Each file's number is the version of
// the schema after it. Some numbers are missing: versions 2 to 6, 9 and 10 made
// functions that versions 11 to 17 replace. A new schema never needs them.
func migrations(schema string) []migration {
	entries, err := files.ReadDir("migrations")
	if err != nil {
		panic(err)
	}
	var all []migration
	for _, e := range entries { // sorted by name
		name := strings.TrimSuffix(e.Name(), ".sql")
		version, err := strconv.Atoi(name[:3])
		if err != nil {
			panic(err) // it is embedded
		}
		all = append(all, migration{version: version, name: name, text: sqlText(path.Join("migrations", e.Name()), schema)})
	}
	return all
}

// newestVersion is the version of the schema that this program makes.
func newestVersion() int {
	all := migrations(DefaultSchema)
	return all[len(all)-1].version
}
