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
	"github.com/croft-dev/croft/internal/statements"
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
	return fmt.Errorf("%w schema %q: it must be a plain lower-case name of letters, digits and _, at most 48 long",
		fence.ErrInvalid, name)
}

// queries are the statements that are sent to the server, for one schema.
type queries struct {
	schema string

	apply, acquire, release, get, list, now, sweep string
	wait, leave, listen, probe                     string

	there, workThere, making, prepare, version, migrated string

	limit, unlimit, rekey, rekeyed, holder, lock, trusted string

	examine, clock, count, idle string

	workApply, workClaim, workGet                                string
	workList, workListFew                                        clerk.Directed
	workItems, workUniques, workBlocked                          string
	workInsert, workUpdate, workRefuse, workRefusals             string
	workStats, workBacklog, workByIndex, workPrunable, workPrune string

	workClaimEnter, workGovernEnter, workRuleChanges                     string
	workLimited, workTurnTake, workTurnTry                               string
	workGranted, workReady, workLevel, workTurns, workWait, workWaitAnew string
	workGrant, workSettle, workRunning                                   string
	workStarts, workStart, workStartForget                               string
	workRuled, workRulesOf, workRules, workRuleKeep                      string

	workArm, workWake, workNotify, workListen string

	workEmit, workEffects, workEffectsOrphaned, workEffectsByID string
	workEffectUpdate, workTake, workTakeAny, workTakeNext       string
	workMarkEnter, workMarks, workMark, workLineEnter           string
}

func newQueries(schema string) *queries {
	q := func(name string) string { return inSchema(name, schema) }
	return &queries{
		schema: schema,

		apply:   q("apply"),
		acquire: q("acquire"),
		release: q("release"),
		get:     q("get"),
		list:    q("list"),
		now:     q("now"),
		sweep:   q("sweep"),
		wait:    q("wait"),
		leave:   q("leave"),
		listen:  q("listen"),
		probe:   q("probe"),

		there:     q("there"),
		workThere: q("work_there"),
		making:    q("making"),
		prepare:   q("prepare"),
		version:   q("version"),
		migrated:  q("migrated"),

		limit:   q("limit"),
		unlimit: q("unlimit"),
		rekey:   q("rekey"),
		rekeyed: q("rekeyed"),
		holder:  q("holder"),
		lock:    q("lock"),
		trusted: q("trusted"),

		examine: q("examine"),
		clock:   q("clock"),
		count:   q("count"),
		idle:    q("idle"),

		workApply:    q("work_apply"),
		workClaim:    q("work_claim"),
		workGet:      q("work_get"),
		workList:     clerk.Direct(q("work_list")),
		workListFew:  clerk.Direct(q("work_list_few")),
		workItems:    q("work_items"),
		workUniques:  q("work_uniques"),
		workBlocked:  q("work_blocked"),
		workInsert:   q("work_insert"),
		workUpdate:   q("work_update"),
		workRefuse:   q("work_refuse"),
		workRefusals: q("work_refusals"),
		workStats:    q("work_stats"),
		workBacklog:  q("work_backlog"),
		workByIndex:  q("work_by_index"),
		workPrunable: q("work_prunable"),
		workPrune:    q("work_prune"),

		workClaimEnter:  q("work_claim_enter"),
		workGovernEnter: q("work_govern_enter"),
		workRuleChanges: q("work_rule_changes"),
		workLimited:     q("work_limited"),
		workTurnTake:    q("work_turn_take"),
		workTurnTry:     q("work_turn_try"),
		workGranted:     q("work_granted"),
		workReady:       q("work_ready"),
		workLevel:       q("work_level"),
		workTurns:       q("work_turns"),
		workWait:        q("work_wait"),
		workWaitAnew:    q("work_wait_anew"),
		workGrant:       q("work_grant"),
		workSettle:      q("work_settle"),
		workRunning:     q("work_running"),
		workStarts:      q("work_starts"),
		workStart:       q("work_start"),
		workStartForget: q("work_start_forget"),
		workRuled:       q("work_ruled"),
		workRulesOf:     q("work_rules_of"),
		workRules:       q("work_rules"),
		workRuleKeep:    q("work_rule_keep"),

		workArm:    q("work_arm"),
		workWake:   q("work_wake"),
		workNotify: q("work_notify"),
		workListen: q("work_listen"),

		workEmit:            q("work_emit"),
		workEffects:         q("work_effects"),
		workEffectsOrphaned: q("work_effects_orphaned"),
		workEffectsByID:     q("work_effects_by_id"),
		workEffectUpdate:    q("work_effect_update"),
		workTake:            q("work_take"),
		workTakeAny:         q("work_take_any"),
		workTakeNext:        q("work_take_next"),
		workLineEnter:       q("work_line_enter"),
		workMarkEnter:       q("work_mark_enter"),
		workMarks:           q("work_marks"),
		workMark:            q("work_mark"),
	}
}

// queryTexts returns the statements in the folder queries. They name the
// default schema.
var queryTexts = sync.OnceValue(func() statements.Set { return statements.MustLoad(files, "queries/*.sql") })

// inSchema returns a named statement, or the migration in a file, with the
// schema's name in place of the default one.
func inSchema(name, schema string) string {
	pieces, ok := sqlPieces()[name]
	if !ok {
		panic("no " + name + " is embedded")
	}
	return strings.Join(pieces, schema)
}

// sqlPieces are all statements and migrations, split where the schema's name
// goes. That is done once, not for every store.
var sqlPieces = sync.OnceValue(func() map[string][]string {
	pieces := map[string][]string{}
	for name, text := range queryTexts() {
		pieces[name] = croftWord.Split(text, -1)
	}
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err) // it is embedded
		}
		pieces[name] = croftWord.Split(strings.TrimSpace(string(text)), -1)
	}
	return pieces
})

// migration is one step from one version of the schema to the next.
type migration struct {
	version    int
	name, text string
}

// migrations returns all steps, in order. Each file's number is the version of
// the schema after it. Some numbers are missing: versions 2 to 6, 9, 10 and 16
// made functions that versions 11 to 19 replace. A new schema never needs them.
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
		text := inSchema(path.Join("migrations", e.Name()), schema)
		all = append(all, migration{version: version, name: name, text: text})
	}
	return all
}

// newestVersion is the version of the schema that this program makes.
func newestVersion() int {
	all := migrations(DefaultSchema)
	return all[len(all)-1].version
}
