"""asyncexec: a dataflow executor for async Python."""

from __future__ import annotations

from asyncexec.framework import errors as errors
from asyncexec.framework.types import float32 as float32
from asyncexec.frontend.create_op import create_op as create_op
from asyncexec.frontend.convert import constant as constant
from asyncexec.frontend.user_op import op as op
from asyncexec.frontend.graph_io import import_graph_def as import_graph_def
from asyncexec.importers.tf_graph_def import load_graph_def as load_graph_def
from asyncexec.graph.graph import Graph as Graph
from asyncexec.session.direct_session import Session as Session
from asyncexec.session.session_config import *
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.session.running import *
import asyncexec.ops
