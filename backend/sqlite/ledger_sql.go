package sqlite

import "github.com/croft-dev/croft/internal/clerk"

// The statements of the ledger.
var (
	sqlWorkBacklog         = queries.Must("work_backlog")
	sqlWorkEffect          = queries.Must("work_effect")
	sqlWorkEffectUpdate    = queries.Must("work_effect_update")
	sqlWorkEffects         = queries.Must("work_effects")
	sqlWorkEmit            = queries.Must("work_emit")
	sqlWorkForget          = queries.Must("work_forget")
	sqlWorkForgetEffects   = queries.Must("work_forget_effects")
	sqlWorkForgetRefusals  = queries.Must("work_forget_refusals")
	sqlWorkGranted         = queries.Must("work_granted")
	sqlWorkInsert          = queries.Must("work_insert")
	sqlWorkItem            = queries.Must("work_item")
	sqlWorkLevel           = queries.Must("work_level")
	sqlWorkFew             = queries.Must("work_few")
	sqlWorkList            = clerk.Direct(queries.Must("work_list"))
	sqlWorkListFew         = clerk.Direct(queries.Must("work_list_few"))
	sqlWorkEffectsOrphaned = queries.Must("work_effects_orphaned")
	sqlWorkMark            = queries.Must("work_mark")
	sqlWorkMarkKeep        = queries.Must("work_mark_keep")
	sqlWorkOld             = queries.Must("work_old")
	sqlWorkReady           = queries.Must("work_ready")
	sqlWorkRefusals        = queries.Must("work_refusals")
	sqlWorkRefuse          = queries.Must("work_refuse")
	sqlWorkStats           = queries.Must("work_stats")
	sqlWorkTake            = queries.Must("work_take")
	sqlWorkUnique          = queries.Must("work_unique")
	sqlWorkUpdate          = queries.Must("work_update")
)
