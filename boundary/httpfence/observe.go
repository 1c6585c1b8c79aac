package httpfence

import (
	"net/http"

	"github.com/croft-dev/croft/internal/admission"
)

// observe passes a request on to the service, and tells whether the proxy would
// have refused it. It still refuses a host name that is not its own: that keeps
// web pages out, and says nothing about owners.
func (p *Proxy) observe(w http.ResponseWriter, r *http.Request) {
	wr := write{Write: admission.Write{What: r.Method}}
	if err := p.checkHost(r); err != nil {
		p.refuse(w, r, wr, err)
		return
	}
	err := checkUpgrade(r)
	if err == nil {
		wr, err = p.gate.read(r)
	}
	switch {
	case err != nil:
	case wr.Resource != "":
		err = p.gate.core.Judge(r.Context(), wr.Write)
	case !wr.exempt:
		err = checkNoBody(r)
	}
	if err != nil || wr.Resource != "" {
		p.gate.core.Observed(wr.Write, err)
	}
	p.reads.ServeHTTP(w, r)
}
