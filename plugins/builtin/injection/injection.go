package injection

import (
	_ "embed"
	"io"
	"sync"

	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

//go:embed schema.json
var schema []byte

// Plugin returns the built-in plugin "injection". With an empty configuration it hides poisoned
// definitions, removes injected sentences from other messages, and strips invisible characters.
func Plugin() sdk.Plugin { return WithClassifier(nil) }

// WithClassifier returns the plugin with the classifier c instead of a classifier behind HTTP. It
// is for programs that build on the plugin. The other settings of the option "classifier", such as
// the timeout, still apply.
func WithClassifier(c Classifier) sdk.Plugin {
	return sdk.Plugin{
		Name:    "injection",
		Version: "1.0.0",
		Doc: "finds prompt injection: poisoned definitions, commands in results, hidden " +
			"text, terminal escapes, names that look like others",
		Needs:    sdk.Needs{Body: true},
		Stateful: true,
		Schema:   schema,
		New:      func(config []byte) (sdk.Stage, error) { return newStage(config, c) },
		SelfTest: selfTest,
	}
}

func newStage(config []byte, c Classifier) (sdk.Stage, error) {
	settings, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	s := &stage{settings: settings, classifier: c, memory: newListMemory(),
		scratches: &sync.Pool{New: func() any { return new(scratch) }}}
	s.scorer = textScorer{defaultGrammar(), &s.actions, s.settings.usesDiscount}
	switch {
	case c != nil && s.scoring.maxBytes == 0: // the option classifier is not set
		s.scoring = classifierDefaults
	case c == nil && s.scoring.url != "":
		s.classifier = newHTTPClassifier(s.scoring.url)
	}
	if s.actions[familyClassifier] == actionOff {
		s.classifier = nil
	}
	return s, nil
}

// Close closes the classifier.
func (s *stage) Close() error {
	if c, ok := s.classifier.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Wants implements sdk.StageWithWants. The stage wants every message: lists hold definitions, the
// use of hidden items must be denied, and any other message may hold text.
func (s *stage) Wants() pipeline.Wants { return pipeline.Wants{} }

// Reuse implements sdk.StageWithReuse. A classifier may return another score for the same text, or
// fail, so its verdicts are not kept.
func (s *stage) Reuse() *sdk.Reuse {
	if s.classifier != nil {
		return nil
	}
	return &sdk.Reuse{Principals: maxPrincipals}
}
