# Everything a developer types. Each target makes .venv and installs what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links \
	--universal --python-version 3.11 --custom-compile-command "make lock"

BENCHES := $(addprefix bench-,register outage failover routes memory soak slow stream rolling handoff scale policy before judge trace ledger kill \
	ring client gpu sick dns extproc discovery view page quota quota-rate jobs jobs-crash jobs-shared)
PEERS := .venv-peers
BULLMQ := bullmq@6.7.0 ioredis@5.11.1

.DEFAULT_GOAL := help
.PHONY: help run test test-long chaos bench-jobs-chaos lint format reference screenshots docs grafana man dist bench $(BENCHES) simulate e2e e2e-envoy mutants lock clean

# An environment belongs to the folder it was made in; copied or moved with it, it would run the other code.
# One whose last install did not end is not trusted either.
ifneq ($(shell cat $(VENV)/checkout 2>/dev/null; ls $(VENV)/unfinished 2>/dev/null),$(CURDIR))
$(shell rm -f $(VENV)/installed-*)
endif

help: ## what can be made
	@echo "make TARGET, where TARGET is"
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1	/p' Makefile
	@echo "PYTHON=python3.13 chooses the Python of a new $(VENV); ARGS=... goes to run, test, chaos, bench..., simulate, e2e and e2e-envoy."

run: $(VENV)/installed-run ## watch two instances balance three upstreams, lose Redis and get it back
	@$(BIN)/slb demo $(ARGS)

test: $(VENV)/installed-dev ## all tests, several at once
	@$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

test-long: $(VENV)/installed-dev ## all tests, with as many examples as CI has
	@SLB_FUZZ_SECONDS=40 $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

chaos: $(VENV)/installed-dev ## 20 minutes of broken connections, instances and Redis, checked from outside
	@$(BIN)/python -m tests.chaos $(ARGS)

bench-jobs-chaos: $(VENV)/installed-dev ## 50,000 jobs while dispatchers, GPUs and Redis are killed: none lost, none ended twice
	@$(BIN)/python -m tests.chaos.jobs $(ARGS)

mutants: $(VENV)/installed-dev ## 200 small changes to the code, each of which a test has to notice: an hour or more
	@$(BIN)/python -m tools.mutants $(ARGS)

lint: $(VENV)/installed-dev ## style, types, and who may import whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict
	@$(BIN)/mypy --strict --explicit-package-bases tools
	@$(BIN)/lint-imports

format: $(VENV)/installed-dev ## put the code into its form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

screenshots: $(VENV)/installed-dev ## pictures of the dashboard for docs/images, of the demo's fleet
	@$(BIN)/python -m tools.screenshots

reference: $(VENV)/installed-run grafana man ## write the tables of docs/reference, dashboards and man page from the code
	@PYTHONPATH=. $(BIN)/python tools/reference.py

grafana: $(VENV)/installed-run ## write the dashboards of deploy/grafana from the metrics that the code declares
	@$(BIN)/python -m tools.grafana

man: $(VENV)/installed-run ## write the man page, deploy/man/slb.1, from the commands
	@$(BIN)/python -m tools.man

dist: $(VENV)/installed-run ## the wheel, in dist: the same bytes from the same commit
	@$(BIN)/python -m tools.dist

docs: $(VENV)/installed-docs ## the documents as a site, in build/docs: links checked, no address outside itself
	@$(BIN)/python -m sphinx -b html -q -W --keep-going docs build/docs
	@echo "slb: open build/docs/index.html"

bench: $(VENV)/installed-bench ## compare with nginx, HAProxy, Envoy and others on this machine
	@$(BIN)/python -m bench $(ARGS)

bench-register: ## how soon a registration through one instance is served by another
bench-outage: ## Redis killed under traffic: failed requests, and when the mirror is true again
bench-failover: ## a master of Redis killed or frozen: seconds until writes and counts work again, what fails
bench-routes: ## 10,000 routes: first sync, memory, lookups, how long a resync holds the loop
bench-memory: ## 10,000 idle connections, and 1 GiB through a slow reader: resident memory
bench-soak: ## half an hour of steady mixed load: does memory stop growing?
bench-slow: ## slow clients, and single ones that do their worst, beside 500 healthy requests a second
bench-stream: ## the first token of a stream, through slb and directly
bench-rolling: ## all instances and all upstreams restarted under traffic: failed requests
bench-handoff: ## how long a pod is idle between two requests while others wait
bench-scale: ## 2 to 100 instances on one pool of 1,000 pods: what a request costs Redis
bench-judge: ## how often a healthy upstream is taken for a sick one, and how soon a sick one is found
bench-policy: ## what least_inflight costs a small request, beside round_robin
bench-before: ## what a request costs beside another commit: ARGS="COMMIT"
bench-trace: ## what traces cost a small request, by the share that is traced
bench-ledger: ## slots taken and given back a second, against one Redis
bench-kill: ## kill -9 of one of three instances, 20 times: when are the counts true again
bench-ring: ## what a pick from the ring costs, beside uhashring, and what making one does
bench-client: ## what the client library costs a call, beside the aiohttp call that it wraps
bench-gpu: ## slow requests over a fleet: slb's view of the whole beside Envoy, nginx, HAProxy
bench-sick: ## one of eight servers falls ill: what callers notice, who is left out and when, beside Envoy, nginx, HAProxy
bench-extproc: ## what an Envoy that asks slb costs, beside the same Envoy alone
bench-discovery: ## 1,000 services of Kubernetes: memory, how soon every instance knows, a rolling deploy
bench-view: ## what the view of the fleet costs: a viewer, an instance that is watched, one that nobody looks at
bench-page: ## what the page costs a real browser, and the instance that serves it
bench-dns: ## answers a second that slb dns gives on one core, beside dnsmasq
bench-quota: ## a backlog drained through the quota router, beside batches without one
bench-quota-rate: ## decisions a second of the quota router, beside one command for each
bench-jobs: ## what a job costs, beside SAQ, arq, taskiq, streaq and BullMQ; submitting; a million that wait
bench-jobs-crash: ## a worker killed or frozen in the middle of its jobs, beside the same five
bench-jobs-shared: ## requests and jobs on the same slots: what requests wait, and whether slots are idle

bench-jobs bench-jobs-crash: $(PEERS)/arq/installed $(PEERS)/taskiq/installed $(PEERS)/node-installed
$(BENCHES): bench-%: $(VENV)/installed-bench
	@$(BIN)/python -m bench $* $(ARGS)

simulate: $(VENV)/installed-bench ## the ring and its policies before a fleet with caches, in simulated time
	@$(BIN)/python -m bench simulate $(ARGS)

e2e: $(VENV)/installed-e2e ## DNS, two instances, two upstreams: exact halves of a thousand requests, none fails for a kill
	@$(BIN)/python -m e2e $(ARGS)

e2e-envoy: $(VENV)/installed-e2e ## real Envoys that ask slb: routes, sheds, queues; whoever dies, no request fails
	@$(BIN)/python -m e2e.envoy $(ARGS)

lock: $(VENV)/installed-dev ## pin anew, and hash, the newest of what pyproject.toml asks for
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(LOCK) pyproject.toml -o requirements.txt
	@$(LOCK) -c requirements.txt --extra test --extra extproc --extra docs pyproject.toml -o requirements-dev.txt
	@$(LOCK) -c requirements.txt --extra docs pyproject.toml -o requirements-docs.txt
	@$(LOCK) -c requirements.txt --extra e2e --extra extproc pyproject.toml -o requirements-e2e.txt
	@$(LOCK) -c requirements.txt --extra bench --extra extproc pyproject.toml -o requirements-bench.txt
	@echo 'opentelemetry-proto>=1.40' | $(LOCK) -c requirements-dev.txt - -o requirements-otlp.txt
	@echo 'setuptools>=77' | $(LOCK) - -o requirements-build.txt
	@printf '%s\n' 'saq[redis]' arq aiohttp uvloop | $(LOCK) - -o requirements-peers-arq.txt
	@printf '%s\n' taskiq taskiq-redis streaq aiohttp uvloop | $(LOCK) - -o requirements-peers-taskiq.txt

clean: ## remove .venv and what tools left behind
	rm -rf $(VENV) $(VENV).lock $(PEERS) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* .mutants

# The stamps are written when all is installed, and not before; `python` is asked only when there is work to do.
$(VENV)/installed-run: requirements.txt requirements-build.txt pyproject.toml
# OTLP's messages come last: xds-protos has older ones under the same names, and the last one installed stays.
$(VENV)/installed-dev: requirements-dev.txt requirements-otlp.txt requirements-build.txt pyproject.toml
$(VENV)/installed-docs: requirements-docs.txt requirements-build.txt pyproject.toml
$(VENV)/installed-e2e: requirements-e2e.txt requirements-build.txt pyproject.toml
$(VENV)/installed-bench: requirements-bench.txt requirements-build.txt pyproject.toml
$(VENV)/installed-%:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "slb: no $(PYTHON) here: install Python 3.11 or later, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "slb: $(PYTHON) is older than 3.11: install a later Python, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) tools/install.py $(VENV) $(filter requirements%,$^)
	@touch $@

# Other job systems, for the benches of jobs alone: two environments, since they need different versions of redis-py.
$(PEERS)/%/installed: requirements-peers-%.txt
	@echo "slb: installing $<, each package checked against its hash"
	@$(PYTHON) -m venv --clear $(PEERS)/$*
	@$(PEERS)/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(PEERS)/node-installed:
	@mkdir -p $(PEERS)
	@if command -v npm >/dev/null 2>&1; then \
		echo "slb: installing $(BULLMQ)"; \
		npm install --prefix $(PEERS) --silent --no-audit --no-fund --ignore-scripts $(BULLMQ) && touch $@; \
	else echo "slb: no npm here, so BullMQ is left out: apt-get install nodejs npm"; fi
